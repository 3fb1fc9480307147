# Windows features, and the settings that Windows needs for containers. Settings: features, release.
# While the result says "restart", Windows must be restarted and this script run again.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

function Set-Number([string]$Key, [string]$Name, [int]$Value) {
    # New-Item -Force would empty a key that exists
    if (-not (Test-Path -Path $Key)) { New-Item -Path $Key -Force | Out-Null }
    if ((Get-ItemProperty -Path $Key).$Name -eq $Value) { return $false }
    Set-ItemProperty -Path $Key -Name $Name -Value $Value -Type DWord
    return $true
}

function Open-Port([string]$Name, [string]$Display, [string]$Protocol, [string]$Ports) {
    if (Get-NetFirewallRule -Name $Name -ErrorAction SilentlyContinue) { return }
    New-NetFirewallRule -Name $Name -DisplayName "winlab: $Display" -Direction Inbound -Action Allow `
        -Protocol $Protocol -LocalPort $Ports -Profile Any | Out-Null
}

Invoke-Step {
    $builds = @{ '2019' = '17763'; '2022' = '20348'; '2025' = '26100' }
    $release = "$($settings.release)"
    if (-not $builds.ContainsKey($release)) { throw "settings.release is '$release', not 2019, 2022 or 2025." }
    $build = (Get-ItemProperty -Path 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion').CurrentBuild
    if ($build -ne $builds[$release]) {
        throw "This is Windows build $build, not Windows Server $release (build $($builds[$release]))."
    }
    $features = @($settings.features)
    if ($features -notcontains 'Containers') { throw 'settings.features has no Containers; nothing runs without it.' }

    # Windows Update would restart Windows at any time
    $update = 'HKLM:\SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU'
    Set-Number $update 'NoAutoUpdate' 1 | Out-Null
    Set-Number $update 'AUOptions' 2 | Out-Null
    Stop-Service -Name 'wuauserv' -Force -ErrorAction SilentlyContinue

    $missing = @($features | Where-Object { (Get-FeatureState $_) -eq 'absent' })
    if ($missing.Count -gt 0) {
        Write-Progressing "installing $($missing -join ', ')"
        $done = Install-WindowsFeature -Name $missing
        if (-not $done.Success) { throw "Windows did not install $($missing -join ', '): $($done.ExitCode)." }
    }

    # as the Kubernetes project's image builder sets them
    $state = 'HKLM:\SYSTEM\CurrentControlSet\Services\hns\State'
    $overrides = 'HKLM:\SYSTEM\CurrentControlSet\Policies\Microsoft\FeatureManagement\Overrides'
    $changed = Set-Number $state 'EnableCompartmentNamespace' 1
    switch ($release) {
        '2019' {
            $changed = (Set-Number $state 'HNSControlFlag' 80) -or $changed
            $filter = 'HKLM:\SYSTEM\CurrentControlSet\Services\wcifs'
            $changed = (Set-Number $filter 'WcifsSOPCountDisabled' 0) -or $changed
        }
        '2022' { $changed = (Set-Number $overrides '1114842764' 0) -or $changed }
        '2025' { $changed = (Set-Number $overrides '520997518' 1) -or $changed }
    }
    $waiting = @($features | Where-Object { (Get-FeatureState $_) -eq 'pending' })
    if ($changed -or $waiting.Count -gt 0) { Request-Restart }

    # the ports below stay free for NodePorts and for programs that listen
    Invoke-Native 'netsh.exe' @(
        'interface', 'ipv4', 'set', 'dynamicportrange', 'tcp', 'startport=34000', 'numberofports=31536') | Out-Null

    Open-Port 'winlab-kubelet' 'kubelet' 'TCP' '10250'
    Open-Port 'winlab-nodeports' 'NodePorts' 'TCP' '30000-32767'
    Open-Port 'winlab-vxlan' 'VXLAN between nodes' 'UDP' '4789'
    if ($features -contains 'Routing') { Open-Port 'winlab-bgp' 'BGP between nodes' 'TCP' '179' }

    # Defender slows down the start of containers, and even more the unpacking of images. It may have been removed
    if (Get-Command -Name 'Add-MpPreference' -ErrorAction SilentlyContinue) {
        try {
            Add-MpPreference -ExclusionPath 'C:\ProgramData\containerd' -ExclusionProcess @(
                "$ContainerdFolder\containerd.exe", "$ContainerdFolder\ctr.exe",
                "$PluginFolder\calico.exe", "$PluginFolder\calico-ipam.exe")
        } catch {
            Write-Progressing "Defender takes no exclusions: $($_.Exception.Message)"
        }
    }

    # BGP: the routing service stays disabled until it has been set up, which needs the installed features
    $restart = Test-RestartPending
    if (-not $restart -and $features -contains 'Routing') {
        if ("$((Get-Service -Name 'RemoteAccess').StartType)" -eq 'Disabled') {
            Install-RemoteAccess -VpnType RoutingOnly | Out-Null
            Set-Service -Name 'RemoteAccess' -StartupType Automatic
        }
        Start-Service -Name 'RemoteAccess'
    }
    if (-not $restart) { Write-Text $FeaturesSet (($features | Sort-Object) -join ',') | Out-Null }
    return @{ restart = $restart }
}
