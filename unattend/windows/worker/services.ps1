# Windows' services: for common.ps1, which all scripts start with. Not called by winlab.

function Get-ServiceState([string]$Name) {
    $service = Get-Service -Name $Name -ErrorAction SilentlyContinue
    if (-not $service) { return 'absent' }
    if ("$($service.Status)" -eq 'Running') { return 'running' }
    return 'stopped'
}

function Get-ServiceCommand([string]$Name) {
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$Name"
    if (-not (Test-Path -Path $key)) { return '' }
    return "$((Get-ItemProperty -Path $key).ImagePath)"
}

# Makes a native service, or changes its command; true if something changed. New-Service and WMI take the command as it
# is; sc.exe would need its quotes escaped
function Set-NativeService([string]$Name, [string]$Display, [string]$Command, [string[]]$DependsOn = @()) {
    $changed = $false
    if ((Get-ServiceState $Name) -eq 'absent') {
        $more = @{}
        if ($DependsOn.Count -gt 0) { $more['DependsOn'] = $DependsOn }
        New-Service -Name $Name -DisplayName $Display -BinaryPathName $Command -StartupType Automatic @more | Out-Null
        $changed = $true
    } elseif ((Get-ServiceCommand $Name) -cne $Command) {
        $service = Get-CimInstance -ClassName Win32_Service -Filter "Name='$Name'"
        $answer = Invoke-CimMethod -InputObject $service -MethodName Change -Arguments @{
            PathName = $Command; StartMode = 'Automatic'; ServiceDependencies = [string[]]$DependsOn
        }
        $code = $answer.ReturnValue
        if ($code -ne 0) { throw "Windows refuses to change the service '$Name' (code $code)." }
        $changed = $true
    }
    # the kubelet ends if containerd answers too late after Windows has started; these actions start it again
    Invoke-Native 'sc.exe' @(
        'failure', $Name, 'reset=', '86400', 'actions=', 'restart/5000/restart/5000/restart/5000') | Out-Null
    Invoke-Native 'sc.exe' @('failureflag', $Name, '1') | Out-Null
    return $changed
}

# The variables of containerd's service that winlab has set, as lines NAME=VALUE; nothing if someone else has set them
function Get-ContainerdEnvironment {
    if (-not (Test-Path -LiteralPath $EnvironmentMark) -or (Get-ServiceState 'containerd') -eq 'absent') { return '' }
    return @((Get-ItemProperty -Path 'HKLM:\SYSTEM\CurrentControlSet\Services\containerd').Environment) -join "`n"
}

# A variable may have a password. So only SYSTEM and Administrators can read the key from then on, and no cmdlet gets
# the value. The service manager adds these variables to those of the system
function Set-ContainerdEnvironment([string[]]$Lines) {
    $key = 'SYSTEM\CurrentControlSet\Services\containerd'
    if ($Lines.Count -eq 0) {
        Remove-ItemProperty -Path "HKLM:\$key" -Name 'Environment' -Force -ErrorAction SilentlyContinue
        Remove-Item -LiteralPath $EnvironmentMark -Force
        return
    }
    Write-Text $EnvironmentMark 'set by winlab' | Out-Null
    $acl = New-Object System.Security.AccessControl.RegistrySecurity
    # only that part, because the others need privileges
    $acl.SetSecurityDescriptorSddlForm($PrivateKey, 'Access')
    Set-Acl -Path "HKLM:\$key" -AclObject $acl
    [Microsoft.Win32.Registry]::SetValue(
        "HKEY_LOCAL_MACHINE\$key", 'Environment', $Lines, [Microsoft.Win32.RegistryValueKind]::MultiString)
}

# Stops these services, in the given order. Returns those that ran, in the order in which to start them again. If one
# can't be stopped, the others are started again, because nothing else would do that
function Stop-Running([string[]]$Names) {
    $ran = @()
    try {
        foreach ($name in $Names) {
            if ((Get-ServiceState $name) -eq 'running') {
                Stop-Service -Name $name -Force
                $ran = @($name) + $ran
                (Get-Service -Name $name).WaitForStatus('Stopped', [TimeSpan]::FromSeconds(60))
            }
        }
    } catch {
        Start-Again $ran
        throw
    }
    return $ran
}

function Start-Again([string[]]$Names) {
    foreach ($name in $Names) { Start-Service -Name $name }
}
