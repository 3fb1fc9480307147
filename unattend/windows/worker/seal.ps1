# Makes a golden image of this Windows: cleans up, then sysprep generalizes it and switches it off. Settings:
# generalize, the text of the answer file for that pass alone; superseded, whether to remove what updates have replaced,
# which takes many minutes; begin: if it is false, nothing is done, and winlab records the result. While the result says
# "restart", nothing was done: Windows must be restarted and this script run again. Otherwise the result comes before
# sysprep has finished; sysprep then switches the machine off. sealed.ps1 reports how far it is.
. (Join-Path $PSScriptRoot 'common.ps1')
. (Join-Path $PSScriptRoot 'tasks.ps1')
$settings = Read-Settings @($input)

$Sysprep = 'C:\Windows\System32\Sysprep'
$Answers = 'C:\winlab\generalize.xml'

# Sysprep fails while a restart is pending
function Test-AnyRestartPending {
    $servicing = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending'
    return (Test-RestartPending) -or (Test-Path -Path $servicing)
}

# How many minutes of the evaluation are left; nothing for a permanent licence. The id is Windows' own
function Get-Licence {
    $filter = "ApplicationID='55c92734-d682-4d71-983e-d6ec3f16059f' AND PartialProductKey IS NOT NULL"
    $product = Get-CimInstance -ClassName SoftwareLicensingProduct -Filter $filter | Select-Object -First 1
    $service = Get-CimInstance -ClassName SoftwareLicensingService
    $minutes = $null
    if ($product -and $product.GracePeriodRemaining -gt 0) { $minutes = [int]$product.GracePeriodRemaining }
    return @{ minutes = $minutes; rearms = [int]$service.RemainingWindowsReArmCount }
}

# A task runs this as SYSTEM, because a remote session can't remove apps for all users (0x80073d19). Sysprep refuses
# apps that one user has but that are not provisioned for all users (0x80073cf2). The task tries each app; sysprep
# decides
$TaskScript = @'
$ErrorActionPreference = 'Stop'
# not by Add-Content, which fails while the log is read
function Write-Line([string]$Text) { [System.IO.File]::AppendAllText('C:\winlab\apps.log', "$Text`r`n") }
$result = @{ error = '' }
try {
    # Edge's own updater would bring it back
    foreach ($service in Get-Service -Name 'edgeupdate', 'edgeupdatem' -ErrorAction SilentlyContinue) {
        Set-Service -Name $service.Name -StartupType Disabled
        Stop-Service -Name $service.Name -Force
    }
    Get-ScheduledTask -TaskName 'MicrosoftEdgeUpdate*' -ErrorAction SilentlyContinue | Disable-ScheduledTask | Out-Null
} catch {
    Write-Line "Edge's updater can't be stopped: $($_.Exception.Message)"
}
try {
    # what is signed as a part of Windows is the desktop's own, but for these
    $others = '^Microsoft\.(MicrosoftEdge\.Stable|Edge\.GameAssist)$|^MicrosoftCorporationII\.WinAppRuntime\.'
    $all = @(Get-AppxProvisionedPackage -Online | ForEach-Object { $_.DisplayName })
    foreach ($app in Get-AppxPackage -AllUsers) {
        $installed = @($app.PackageUserInformation | Where-Object { "$($_.InstallState)" -ne 'Staged' })
        if ($app.IsFramework -or $all -contains $app.Name -or $installed.Count -eq 0) { continue }
        if ("$($app.SignatureKind)" -eq 'System' -and $app.Name -notmatch $others) { continue }
        Write-Line "removing the app $($app.Name)"
        try {
            Remove-AppxPackage -Package $app.PackageFullName -AllUsers
        } catch {
            Write-Line "it stays: $($_.Exception.Message)"
        }
    }
} catch {
    $result.error = "$($_.Exception.Message)"
}
# under another name first: half a file is no JSON
ConvertTo-Json -InputObject $result | Set-Content -LiteralPath 'C:\winlab\apps.json.new' -Encoding ASCII
Move-Item -LiteralPath 'C:\winlab\apps.json.new' -Destination 'C:\winlab\apps.json' -Force
'@

# An error here does not stop the build. Server Core has no such apps, and its Appx may not even answer
function Remove-UserApps {
    $version = Get-ItemProperty -Path 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
    if ("$($version.InstallationType)" -eq 'Server Core') { return }
    Write-Progressing 'removing apps that only one user has'
    try {
        $removed = Invoke-AsSystem 'apps' $TaskScript 30 'The task for apps ended without a result'
        if ($removed.error) { throw $removed.error }
    } catch {
        Write-Progressing "apps of one user may be left: $($_.Exception.Message)"
    }
}

# Cleans up, and starts sysprep with an answer file of this text
function Start-Sysprep($Text, $Superseded) {
    Write-Progressing 'cleaning up'
    Stop-Running @('kube-proxy', 'kubelet', 'containerd') | Out-Null
    Remove-UserApps
    if ($Superseded) {
        # with /ResetBase installed updates can't be uninstalled any more
        Write-Progressing 'removing what updates have replaced'
        Invoke-Native 'dism.exe' @('/Online', '/Cleanup-Image', '/StartComponentCleanup', '/ResetBase') {
            param($line)
            if ($line -match '\d%') { Write-Progressing "removing what updates have replaced: $($line.Trim(' =[]'))" }
            $line
        } | Out-Null
    }
    # a clone's bootstrap makes the beacon again; the other task remains if it failed
    foreach ($task in 'winlab-beacon', 'winlab-apps') {
        Unregister-ScheduledTask -TaskName $task -Confirm:$false -ErrorAction SilentlyContinue
    }
    # Setup prefers the file that this names to any CD
    Remove-ItemProperty -Path 'HKLM:\SYSTEM\Setup' -Name 'UnattendFile' -ErrorAction SilentlyContinue
    # neither may answer before a clone's own bootstrap has given them keys. sshd may be missing
    foreach ($service in Get-Service -Name 'sshd', 'WinRM' -ErrorAction SilentlyContinue) {
        Set-Service -Name $service.Name -StartupType Manual
    }
    Remove-Item -Force -ErrorAction SilentlyContinue -Path @(
        'C:\ProgramData\ssh\ssh_host_*', 'C:\ProgramData\ssh\administrators_authorized_keys',
        "$env:USERPROFILE\.ssh\authorized_keys",
        'C:\winlab\ready.txt', 'C:\winlab\bootstrap.log', # otherwise their errors look like a clone's
        'C:\Windows\Panther\setup*.log', 'C:\Windows\Panther\UnattendGC\setup*.log',
        "$WinlabFolder\apps.*", "$Sysprep\unattend.xml", "$Sysprep\Sysprep_succeeded.tag",
        'C:\Windows\Panther\unattend.xml', 'C:\Windows\Panther\unattend-original.xml')
    Remove-Item -Recurse -Force -ErrorAction SilentlyContinue -Path @(
        'C:\Windows\Temp\*', 'C:\Windows\SoftwareDistribution\Download\*', "$Sysprep\Panther\*")
    Optimize-Volume -DriveLetter C -ReTrim -ErrorAction SilentlyContinue

    # A process of this session would end with the session; one that WMI starts does not. /mode:vm: the clones have the
    # same virtual hardware; with Hyper-V installed nothing else works
    Write-Text $Answers $Text | Out-Null
    Write-Progressing 'starting sysprep'
    $command = "$Sysprep\sysprep.exe /generalize /oobe /shutdown /quiet /mode:vm /unattend:$Answers"
    $answer = Invoke-CimMethod -ClassName Win32_Process -MethodName Create -Arguments @{ CommandLine = $command }
    if ($answer.ReturnValue -ne 0) { throw "sysprep.exe could not be started (code $($answer.ReturnValue))." }
}

Invoke-Step {
    $text = "$($settings.generalize)"
    if (-not $text) { throw 'settings.generalize is empty: it must be the text of an answer file.' }
    if (Test-Joined) { throw 'This node has joined a cluster: what is made of it would carry its identity.' }
    if (Test-AnyRestartPending) { return @{ restart = $true } }
    $state = "$((Get-ItemProperty -Path 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State').ImageState)"
    if ($state -ne 'IMAGE_STATE_COMPLETE') { throw "Windows' Setup is not complete: its state is '$state'." }
    $licence = Get-Licence
    $version = Get-ItemProperty -Path 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
    if ($settings.begin) { Start-Sysprep $text $settings.superseded }
    return @{
        restart = $false
        build = "$($version.CurrentBuild).$($version.UBR)"
        evaluation_minutes = $licence.minutes
        rearms = $licence.rearms
    }
}
